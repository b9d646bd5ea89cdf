// While somebody types in a field that refers to rows, its list is asked for those that fit, so that each row is found, however
// old. Without scripts, the list has the rows that came with the page.

const PAUSE_MS = 150;

const last = new WeakMap();
let pause;

function offer(list, rows) {
  list.replaceChildren(...rows.map(([value, words]) => Object.assign(document.createElement("option"), {
    value, textContent: words,
  })));
}

async function search(field) {
  const typed = field.value;
  if (typed === last.get(field)) return;
  last.set(field, typed);
  const address = `${field.list.dataset.search}?s=${encodeURIComponent(typed.trim())}`;
  const answer = await fetch(address, { headers: { Accept: "application/json" } });
  if (answer.ok && field.value === typed) offer(field.list, (await answer.json()).rows);
}

// Also for fields of rows that are added later.
document.addEventListener("input", (event) => {
  const field = event.target;
  if (!field.list?.dataset.search) return;
  clearTimeout(pause);
  pause = setTimeout(() => search(field).catch(() => {}), PAUSE_MS); // without an answer, the list stays as it is
});
