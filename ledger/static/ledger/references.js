// While somebody types in a field that refers to rows, its list is asked for those that fit, so that each row is found, however
// old. Without scripts, the list has the rows that came with the page.

const PAUSE_MS = 150;

for (const field of document.querySelectorAll("input[list]")) {
  const list = field.list;
  if (!list?.dataset.search) continue;
  let last = "";
  let pause;

  // A field of several names completes the last one.
  const split = () => {
    const end = field.dataset.several ? field.value.lastIndexOf(field.dataset.several) + 1 : 0;
    return [field.value.slice(0, end), field.value.slice(end).trim()];
  };
  const offer = (rows, before) => {
    const beginning = before && `${before} `;
    list.replaceChildren(...rows.map(([value, words]) => Object.assign(document.createElement("option"), {
      value: beginning + value, textContent: words,
    })));
  };
  const search = async () => {
    const [before, word] = split();
    if (field.value === last) return;
    last = field.value;
    const answer = await fetch(`${list.dataset.search}?s=${encodeURIComponent(word)}`, { headers: { Accept: "application/json" } });
    if (answer.ok && field.value === last) offer((await answer.json()).rows, before);
  };
  field.addEventListener("input", () => {
    clearTimeout(pause);
    pause = setTimeout(() => search().catch(() => {}), PAUSE_MS); // without an answer, the list stays as it is
  });
}
