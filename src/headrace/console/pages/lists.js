// Results as a reader shows them and as a table, and the lists of queries and feeds.
import { byId, el, outsideLink, reconcile, setText, showAgo, showDay, showNumber, showTime } from "./dom.js";
import { isAddress, rowTitle, valueText } from "./store.js";

/** Items of the reader: title, the moment of production, and one line for each column. */
export function showReader(query, rows, onMap) {
  reconcile(byId("reader"), rows, (row) => `${query.id}-${row.n}`, (row) => {
    const place = row.places.length
      ? el("button", { type: "button", class: "quiet show-on-map" }, "Show on the map")
      : null;
    place?.addEventListener("click", () => onMap(row));
    const lines = query.columns.map((column, i) => {
      const value = row.values[i];
      if (value === null) return null;
      const text = valueText(value);
      return el("div", {}, el("dt", {}, column.replace(".", " ")), el("dd", {}, isAddress(value) ? outsideLink(value, text) : text));
    });
    return el(
      "li",
      { class: "item" },
      el("h3", {}, el("span", { class: "number" }, `${row.n}) `), rowTitle(row)),
      el("p", { class: "when" }, el("time", { datetime: new Date(row.at).toISOString() }, showDay(row.at)), place),
      el("dl", { class: "values" }, ...lines),
    );
  });
}

/** The table: a column for each selected one. */
export function showTable(query, rows) {
  const [head, body] = [byId("table").tHead, byId("table").tBodies[0]];
  const names = ["#", "Produced", ...query.columns];
  if (head.textContent !== names.join("")) {
    head.replaceChildren(el("tr", {}, ...names.map((name) => el("th", { scope: "col" }, name))));
    body.replaceChildren();
  }
  reconcile(body, rows, (row) => `${query.id}-${row.n}`, (row) =>
    el(
      "tr",
      {},
      el("td", { class: "number" }, String(row.n)),
      el("td", { class: "moment" }, showTime(row.at)),
      ...row.values.map((value) => {
        const text = valueText(value);
        return el("td", { class: typeof value === "number" ? "number" : null }, isAddress(value) ? outsideLink(value, text) : text);
      }),
    ),
  );
}

/** The list of queries, a button each; the selected one is pressed. */
export function showQueries(store, onSelect) {
  const list = byId("queries");
  reconcile(list, [...store.queries.values()], (query) => query.id, (query) => {
    const button = el(
      "button",
      { type: "button", class: "row" },
      el("span", { class: `swatch colour-${query.colour % 6}` }),
      el("span", { class: "row-text" }, el("span", { class: "row-name" }, query.name), el("span", { class: "row-note" })),
      el("span", { class: "row-figure" }),
    );
    button.addEventListener("click", () => onSelect(query.id));
    return el("li", {}, button);
  });
  for (const item of list.children) {
    const query = store.queries.get(item.dataset.key);
    const button = item.firstElementChild;
    button.setAttribute("aria-pressed", String(query.id === store.selected));
    setText(button.querySelector(".row-note"), query.error ? `failed: ${query.error}` : query.state);
    setText(button.querySelector(".row-figure"), showNumber(query.count));
    button.dataset.state = query.state;
  }
  if (!store.queries.size) list.replaceChildren(el("li", { class: "none" }, "No queries yet. Write one and run it."));
}

/** The list of feeds: last pull, items, error. */
export function showFeeds(store, now) {
  const list = byId("feeds");
  const { count, shown } = store.feeds;
  setText(byId("feeds-count"), count > shown.length ? `${shown.length} of ${showNumber(count)}` : showNumber(count));
  reconcile(list, shown, (feed) => feed.url, (feed) =>
    el(
      "li",
      { class: "feed" },
      el("span", { class: "row-text" }, el("span", { class: "row-name" }), el("span", { class: "row-note url" }, feed.url), el("span", { class: "row-note pull" })),
      el("span", { class: "row-figure" }),
    ),
  );
  for (const item of list.children) {
    const feed = shown.find(({ url }) => url === item.dataset.key);
    if (!feed) continue;
    setText(item.querySelector(".row-name"), feed.title || feed.url.replace(/^https?:\/\//, ""));
    const pulled = feed.pulled === null ? "not pulled yet" : `pulled ${showAgo((now - feed.pulled) / 1000)}`;
    setText(item.querySelector(".pull"), feed.error ? `${pulled}: ${feed.error}` : pulled);
    item.classList.toggle("failing", Boolean(feed.error));
    setText(item.querySelector(".row-figure"), showNumber(feed.items));
  }
  if (!shown.length) list.replaceChildren(el("li", { class: "none" }, "Feeds appear when a query names them."));
}
