// Tables of rows in forms: adds and removes rows. Without it, an empty row and a button of the page do the same on the server.

function renumber(table) {
  const name = table.dataset.rows;
  table.querySelectorAll("tbody tr").forEach((row, number) => {
    for (const input of row.querySelectorAll("input, select")) {
      const column = input.name.split("-").at(-1);
      input.name = `${name}-${number}-${column}`;
      input.id = `${table.id}-${number}-${column}`;
      input.setAttribute("aria-label", input.getAttribute("aria-label").replace(/ \d+: /, ` ${number + 1}: `));
      const currency = input.parentElement.querySelector("[data-currency-of], [id$=_currency]");
      if (currency) {
        currency.id = `${input.id}_currency`;
        input.setAttribute("aria-describedby", currency.id);
        const own = currency.dataset.currencyOf?.match(/-\d+-(\w+)$/);
        if (own) currency.dataset.currencyOf = `${name}-${number}-${own[1]}`;
      }
    }
    const drop = row.querySelector("[data-drop-row]");
    drop.setAttribute("aria-label", drop.getAttribute("aria-label").replace(/\d+$/, number + 1));
  });
  table.dispatchEvent(new Event("change", { bubbles: true }));
}

function empty(row) {
  for (const fault of row.querySelectorAll(".cell-fault")) fault.remove();
  for (const input of row.querySelectorAll("input, select")) {
    input.value = input.dataset.first ?? "";
    input.removeAttribute("aria-invalid");
    input.removeAttribute("aria-describedby");
  }
}

function addRow(table) {
  const last = table.querySelector("tbody tr:last-child");
  const row = last.cloneNode(true);
  empty(row);
  last.after(row);
  renumber(table);
  row.querySelector("td:not([hidden]) :is(input, select)").focus();
}

function dropRow(table, row) {
  const next = row.nextElementSibling ?? row.previousElementSibling;
  if (next) row.remove();
  else empty(row);
  renumber(table);
  (next?.querySelector("[data-drop-row]") ?? table.querySelector("[data-add-row]")).focus();
}

for (const button of document.querySelectorAll("[data-add-row], [data-drop-row]")) button.hidden = false;
document.addEventListener("click", (event) => {
  const table = event.target.closest("[data-rows]");
  if (!table) return;
  if (event.target.closest("[data-add-row]")) addRow(table);
  else if (event.target.closest("[data-drop-row]")) dropRow(table, event.target.closest("tr"));
});
