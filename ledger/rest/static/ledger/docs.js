// What Swagger UI leaves to be mended: the look that the reader's system asks for, and what a keyboard and a screen reader need.

const dark = matchMedia("(prefers-color-scheme: dark)");
const chooseLook = () => document.documentElement.classList.toggle("dark-mode", dark.matches);
dark.addEventListener("change", chooseLook);
chooseLook();

const nameOf = (field) => {
  const row = field.closest("tr[data-param-name]");
  if (field.matches(".examples-select-element")) return row ? `Example of ${row.dataset.paramName}` : "Example";
  if (row) return row.dataset.paramName;
  return field.matches("textarea") ? "Request body" : "Media type";
};

const mend = () => {
  // A link within the button that opens a call: a control within a control. The button does what the link does.
  for (const link of document.querySelectorAll("button .nostyle[href]")) link.removeAttribute("href");
  for (const field of document.querySelectorAll("select:not([aria-label]), textarea:not([aria-label])")) {
    if (!field.labels?.length) field.setAttribute("aria-label", nameOf(field));
  }
  // What scrolls can be scrolled by keyboard.
  for (const code of document.querySelectorAll(".microlight:not([tabindex])")) code.tabIndex = 0;
};

addEventListener("DOMContentLoaded", () => {
  new MutationObserver(mend).observe(document.getElementById("swagger-ui"), { childList: true, subtree: true });
});
