// The API reference was at /docs, and its calls had addresses such as /docs#/Credits/spendCredits: they lead on to where it is now.
if (location.hash.startsWith("#/")) location.replace(new URL("api" + location.hash, new URL("..", document.querySelector("link[rel=icon]").href)));

// A table that is too wide for the page scrolls, also by keyboard.
const letScroll = () => {
  for (const box of document.querySelectorAll(".md-typeset__scrollwrap")) {
    if (box.scrollWidth > box.clientWidth) box.tabIndex = 0;
    else box.removeAttribute("tabindex");
  }
};
new MutationObserver(letScroll).observe(document.body, { childList: true, subtree: true });
addEventListener("resize", letScroll);
letScroll();
