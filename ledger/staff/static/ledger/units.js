// Shows beside an amount the unit of the credit type that is typed in the same form. The server converts by itself.

const named = JSON.parse(document.getElementById("named-units").textContent);

for (const shown of document.querySelectorAll("[data-unit-of]")) {
  const type = shown.closest("form").elements[shown.dataset.unitOf];
  const show = () => {
    const code = type.value.trim() || "credits";
    const [units, unit] = named[code] ?? Array(2).fill(code.replaceAll("_", " "));
    shown.textContent = "ofOne" in shown.dataset ? unit : units;
  };
  type.addEventListener("input", show);
  show(); // a browser that goes back fills in what was typed
}
