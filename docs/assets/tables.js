// Result tables: a click on a heading sorts (numbers by value), a box above a long table filters its rows.
const NUMBER = /-?\d[\d\s]*(?:\.\d+)?(?:e[-+]?\d+)?/i;

function key(row, column) {
  const text = row.cells[column].textContent.trim();
  const number = text.match(NUMBER);
  return { text, number: number && number.index <= 1 ? parseFloat(number[0].replace(/\s/g, "")) : NaN };
}

function sort(table, column, heading) {
  const up = heading.getAttribute("aria-sort") !== "ascending";
  const rows = [...table.tBodies[0].rows].map((row) => ({ row, ...key(row, column) }));
  const numeric = rows.every(({ text, number }) => text === "–" || !Number.isNaN(number));
  rows.sort((a, b) => {
    const order = numeric ? (a.number || 0) - (b.number || 0) : a.text.localeCompare(b.text);
    return up ? order : -order;
  });
  for (const other of heading.parentElement.cells) other.removeAttribute("aria-sort");
  heading.setAttribute("aria-sort", up ? "ascending" : "descending");
  table.tBodies[0].append(...rows.map(({ row }) => row));
}

function prepare(table) {
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    heading.tabIndex = 0;
    heading.classList.add("sortable");
    heading.addEventListener("click", () => sort(table, column, heading));
    heading.addEventListener("keydown", (event) => event.key === "Enter" && sort(table, column, heading));
  });
}

function filterable(tables, before) {
  const box = Object.assign(document.createElement("input"), { type: "search", className: "filter" });
  box.placeholder = "Filter rows: a method, a verdict, a word";
  box.setAttribute("aria-label", box.placeholder);
  before.before(box);
  box.addEventListener("input", () => {
    const words = box.value.toLowerCase().split(/\s+/);
    for (const table of tables) {
      const title = (table.closest(".md-typeset__scrollwrap") ?? table).previousElementSibling?.textContent ?? "";
      let shown = 0;
      for (const row of table.tBodies[0].rows) {
        const text = `${title} ${row.textContent}`.toLowerCase();
        row.hidden = !words.every((word) => text.includes(word));
        shown += !row.hidden;
      }
      table.classList.toggle("none-left", shown === 0);
    }
  });
}

document.addEventListener("DOMContentLoaded", () => {
  const tables = [...document.querySelectorAll(".md-typeset table:not([class])")].filter((table) => table.tHead);
  tables.forEach(prepare);
  if (document.querySelector("[data-filter]")) filterable(tables, document.querySelector("[data-filter]"));
});
