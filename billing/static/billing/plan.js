// The form of a plan: shows the fields that the chosen model and kind use, and keeps the examples current.
// Without it, a button of the page does the same on the server.

const form = document.getElementById("operation");
const WAIT_MS = 400;

function chosen(price, name) {
  return price.querySelector(`select[name$="_${name}"]`).value;
}

function showUsed(price) {
  const model = chosen(price, "model");
  const kind = chosen(price, "kind");
  for (const part of price.querySelectorAll("[data-models]")) {
    const kinds = part.dataset.kinds?.split(" ") ?? [kind];
    part.hidden = !(part.dataset.models.split(" ").includes(model) && kinds.includes(kind));
  }
  for (const input of price.querySelectorAll("[data-models] :is(input, select, textarea)")) {
    input.disabled = input.closest("[data-models][hidden]") !== null;
  }
}

let waiting = 0;
let asked = 0;

function showExamples() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    const number = ++asked;
    const response = await fetch(form.dataset.examples, { method: "POST", body: new FormData(form) });
    if (!response.ok || number !== asked) return; // a later one is on its way
    const found = new DOMParser().parseFromString(await response.text(), "text/html");
    for (const example of found.querySelectorAll(".example")) document.getElementById(example.id)?.replaceWith(example);
  }, WAIT_MS);
}

for (const price of form.querySelectorAll("[data-price]")) showUsed(price);
form.addEventListener("change", (event) => {
  const price = event.target.closest("[data-price]");
  if (price) showUsed(price);
  showExamples();
});
form.addEventListener("input", showExamples);
