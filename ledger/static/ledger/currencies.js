// Shows beside an amount of money the currency that is chosen in the same form. The server reads the currency by itself.

for (const shown of document.querySelectorAll("[data-currency-of]")) {
  const currency = shown.closest("form").elements[shown.dataset.currencyOf];
  if (!currency) continue;
  const known = JSON.parse(currency.dataset.currencies ?? "null");
  const show = () => {
    const typed = currency.value.trim();
    shown.textContent = (known ? known[typed] : typed.toUpperCase()) || "choose a currency";
  };
  currency.addEventListener("input", show);
  currency.addEventListener("change", show);
  show(); // a browser that goes back fills in what was typed
}
