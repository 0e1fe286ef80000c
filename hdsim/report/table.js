"use strict";
/**
 * A table with search, sort and pages.
 *
 * @param table Chart of kind "table".
 * @param make Makes an element from a tag, properties and children.
 * @param shown Formats a value, by kind of column.
 * @param choose Called with the table and the row that was clicked, -1 for none, where the table has a span.
 */
const makeTable = (table, make, shown, choose) => {
  const { columns, span } = table, ROWS = 15, count = columns[0].values.length;
  const rows = Array.from({ length: count }, (_, row) => row);
  const collator = new Intl.Collator("en", { numeric: true });
  let [found, page, sorted, descending, chosen] = [rows, 0, -1, false, -1];

  const cell = ({ values, kind }, row) =>
    kind === "text" ? values[row] : Number.isFinite(values[row]) ? shown[kind](values[row], 4) : "–";
  const compare = ({ values, kind }) => kind === "text"
    ? (a, b) => collator.compare(values[a], values[b])
    // Missing numbers come first.
    : (a, b) => (Number.isNaN(values[a]) ? -Infinity : values[a]) - (Number.isNaN(values[b]) ? -Infinity : values[b]) || 0;
  const body = make("tbody"), place = make("span", { role: "status" });
  const turn = (label, text, by) => {
    const button = make("button", { type: "button", textContent: text, ariaLabel: label });
    button.addEventListener("click", () => { page += by; fill(); });
    return button;
  };
  const back = turn("previous page", "‹", -1), on = turn("next page", "›", 1);
  const fill = () => {
    const pages = Math.max(1, Math.ceil(found.length / ROWS));
    page = Math.min(Math.max(page, 0), pages - 1);
    const from = page * ROWS;
    body.replaceChildren(...found.slice(from, from + ROWS).map((row) => {
      const line = make("tr", { ariaSelected: String(row === chosen) },
        ...columns.map((column) => make("td", { className: column.kind, textContent: cell(column, row) })));
      if (span.length) {
        line.addEventListener("click", () => {
          chosen = chosen === row ? -1 : row;
          fill();
          choose(table, chosen);
        });
      }
      return line;
    }));
    const upTo = Math.min(from + ROWS, found.length);
    place.textContent = found.length ? `${(from + 1).toLocaleString("en")} to ${upTo.toLocaleString("en")} of ` +
      `${found.length.toLocaleString("en")}` : "no row";
    [back.disabled, on.disabled] = [page === 0, page === pages - 1];
  };

  const search = make("input", { type: "search", placeholder: "search", ariaLabel: "search" });
  const select = () => {
    const words = search.value.trim().toLowerCase();
    const texts = columns.filter(({ kind }) => kind === "text");
    found = words ? rows.filter((row) => texts.some(({ values }) => values[row].toLowerCase().includes(words))) : rows;
    page = 0;
    fill();
  };
  search.addEventListener("input", select);
  const heads = columns.map((column, index) => {
    const button = make("button", { type: "button", textContent: column.label });
    const head = make("th", { scope: "col", className: column.kind }, button);
    button.addEventListener("click", () => {
      // Numbers begin with the largest.
      descending = sorted === index ? !descending : column.kind !== "text";
      sorted = index;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.ariaSort = descending ? "descending" : "ascending";
      rows.sort(compare(column));
      if (descending) rows.reverse();
      select();
    });
    return head;
  });
  fill();
  return make("div", { className: span.length ? "table choosable" : "table" },
    make("div", { className: "bar" }, ...(count > ROWS ? [search, place, back, on] : [])),
    make("div", { className: "scroll" },
      make("table", {}, make("thead", {}, make("tr", {}, ...heads)), body)));
};
