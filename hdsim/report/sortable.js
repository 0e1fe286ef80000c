"use strict";
// Rows of a table are sorted by the column of the button that is pressed: numbers as numbers, those that are missing last.
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.querySelectorAll("thead th")], body = table.tBodies[0];
  heads.forEach((head, column) => head.querySelector("button")?.addEventListener("click", () => {
    const down = head.getAttribute("aria-sort") === "ascending";
    for (const other of heads) other.removeAttribute("aria-sort");
    head.setAttribute("aria-sort", down ? "descending" : "ascending");
    const keyed = [...body.rows].map((row) => {
      const cell = row.cells[column], given = cell.dataset.value;
      return [given === undefined ? cell.textContent : Number(given), row];
    });
    const missing = (key) => Number.isNaN(key);
    const compare = (a, b) => typeof a === "string" ? a.localeCompare(b, undefined, { numeric: true }) : a - b;
    keyed.sort(([a], [b]) => missing(a) || missing(b) ? missing(a) - missing(b) : (down ? -1 : 1) * compare(a, b));
    body.append(...keyed.map(([, row]) => row));
  }));
}
