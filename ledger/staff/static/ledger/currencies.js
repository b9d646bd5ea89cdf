// Shows beside an amount of money the currency that is chosen in the same form. The server reads the currency by itself.

// The code itself, or that of the name in the field's list.
function codeOf(field, typed) {
  if (typed.length <= 3) return typed.toUpperCase();
  return [...(field.list?.options ?? [])].find(({ text }) => text.toLowerCase() === typed.toLowerCase())?.value;
}

function showCurrencies(form, name) {
  for (const shown of form.querySelectorAll("[data-currency-of]")) {
    const currency = form.elements[shown.dataset.currencyOf];
    if (!currency || (name && currency.name !== name)) continue;
    const known = JSON.parse(currency.dataset.currencies ?? "null");
    const typed = currency.value.trim();
    shown.textContent = (known ? known[typed] : codeOf(currency, typed)) || "choose a currency";
  }
}

for (const form of document.querySelectorAll("form:has([data-currency-of])")) {
  for (const kind of ["input", "change"]) form.addEventListener(kind, (event) => showCurrencies(form, event.target.name));
  showCurrencies(form); // a browser that goes back fills in what was typed
}
