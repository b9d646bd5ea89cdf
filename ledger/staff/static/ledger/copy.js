// Buttons that copy the text of another element, such as of a key that is shown once. Without scripts, a click selects the text.

for (const button of document.querySelectorAll("[data-copy]")) {
  button.hidden = false;
  button.addEventListener("click", async () => {
    const source = document.getElementById(button.dataset.copy);
    try {
      await navigator.clipboard.writeText(source.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source); // a page without HTTPS may not copy
      button.textContent = "Selected: press Ctrl+C";
    }
  });
}
