// Tables of several rows: a click on a header sorts by it, a field above filters the rows.
document.addEventListener("DOMContentLoaded", () => {
  for (const table of document.querySelectorAll("article table")) {
    const body = table.tBodies[0];
    if (!body || body.rows.length < 6 || !table.tHead) continue;
    const written = [...body.rows];
    // In bold, titles of the rows below them: these keep their order, and titles stay.
    const titles = written.filter((row) => row.cells[0].firstElementChild?.tagName === "STRONG");

    const filter = document.createElement("input");
    filter.type = "search";
    filter.placeholder = filter.ariaLabel = "filter rows";
    filter.className = "rows-filter";
    filter.addEventListener("input", () => {
      const words = filter.value.toLowerCase().split(/\s+/);
      for (const row of written) {
        const text = row.textContent.toLowerCase();
        row.hidden = !titles.includes(row) && !words.every((word) => text.includes(word));
      }
    });
    (table.closest(".md-typeset__scrollwrap") ?? table).before(filter);

    if (titles.length) continue;
    // Down, up, then as written. A cell counts as its first number, if it has one.
    [...table.tHead.rows[0].cells].forEach((head, column) => {
      const button = document.createElement("button");
      button.className = "rows-sort";
      button.append(...head.childNodes);
      head.append(button);
      button.addEventListener("click", () => {
        const order = { none: "descending", descending: "ascending", ascending: "none" };
        const next = order[head.ariaSort ?? "none"];
        for (const other of table.tHead.rows[0].cells) other.ariaSort = "none";
        head.ariaSort = next;
        const sign = next === "descending" ? -1 : 1;
        const sorted = [...written];
        if (next !== "none") {
          sorted.sort((a, b) => compared(a.cells[column], b.cells[column], sign));
        }
        body.append(...sorted);
      });
    });
  }

  function compared(a, b, sign) {
    const [one, other] = [a, b].map((cell) => cell.textContent.trim());
    if (!one || !other) return (one ? 0 : 1) - (other ? 0 : 1); // empty cells last, either way
    const [x, y] = [one, other].map((text) => parseFloat(text.replace("−", "-")));
    const numbers = !Number.isNaN(x) && !Number.isNaN(y);
    return sign * (numbers ? x - y : one.localeCompare(other));
  }
});
