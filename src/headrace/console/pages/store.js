// What this page knows: queries by id with the newest of their results, each once, and the selected one.

const KEPT = 3000; // results of a query in the page: the newest; older ones are asked for
const POINTS = 600; // of a curve

export class Store {
  constructor() {
    this.queries = new Map();
    this.feeds = { count: 0, shown: [] };
    this.selected = null;
  }

  /** Take the state of queries and feeds; queries that are gone go with their results. */
  status({ queries, feeds }, now) {
    const old = this.queries;
    const free = [...Array(queries.length + old.size).keys()];
    for (const query of old.values()) free.splice(free.indexOf(query.colour), 1);
    this.queries = new Map(
      queries.map((query) => {
        const known = old.get(query.id) ?? { results: [], seen: new Set(), last: 0, curve: [], colour: free.shift(), shown: true };
        const curve = known.curve;
        if (!curve.length || curve[curve.length - 1][1] !== query.count) curve.push([now, query.count]);
        if (curve.length > POINTS) known.curve = curve.filter((_, i) => i % 2 === 0 || i > curve.length - 3);
        return [query.id, Object.assign(known, query)];
      }),
    );
    this.feeds = feeds;
    if (this.selected && !this.queries.has(this.selected)) {
      const gone = old.get(this.selected);
      this.selected = [...this.queries.values()].find((query) => query.name === gone?.name)?.id ?? null;
    }
  }

  /** Take results of a query. Returns those that are new here: what comes twice is dropped. */
  results(id, rows, older = false) {
    const query = this.queries.get(id);
    if (!query) return [];
    const fresh = rows.filter((row) => !query.seen.has(row.n));
    for (const row of fresh) query.seen.add(row.n);
    if (older) {
      query.results = [...fresh, ...query.results];
      return fresh;
    }
    query.results.push(...fresh);
    if (fresh.length) query.last = Math.max(query.last, fresh[fresh.length - 1].n);
    if (query.results.length > KEPT + 500 && !query.browsing) {
      for (const row of query.results.splice(0, query.results.length - KEPT)) query.seen.delete(row.n);
    }
    return fresh;
  }

  position() {
    return Object.fromEntries([...this.queries.values()].filter((query) => query.last).map((query) => [query.id, query.last]));
  }

  get current() {
    return this.queries.get(this.selected) ?? null;
  }
}

/** A value as text. */
export function valueText(value) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") return Number.isInteger(value) ? String(value) : String(Math.round(value * 1e4) / 1e4);
  if (Array.isArray(value)) return value.map(valueText).join(", ");
  if (typeof value === "object") return Object.values(value).map(valueText).join(" ");
  if (/^\d{4}-\d\d-\d\dT[\d:]+Z$/.test(value)) return value.replace("T", " ").replace("Z", " UTC");
  return String(value);
}

export const isAddress = (value) => typeof value === "string" && /^https?:\/\//i.test(value);

/** The title of a result: all its values but addresses, which are shown as links. */
export function rowTitle(row) {
  return row.values.filter((value) => !isAddress(value)).map(valueText).filter(Boolean).join(", ") || "(no values)";
}

/** Results that contain every word of the search, in the wanted order. */
export function chosenRows(rows, search, sort) {
  const words = search.toLowerCase().split(/\s+/).filter(Boolean);
  const found = words.length
    ? rows.filter((row) => {
        row.text ??= rowTitle(row).toLowerCase();
        return words.every((word) => row.text.includes(word));
      })
    : [...rows];
  if (sort === "title") {
    for (const row of found) row.text ??= rowTitle(row).toLowerCase();
    return found.sort((a, b) => (a.text < b.text ? -1 : a.text > b.text ? 1 : b.n - a.n));
  }
  return found.sort((a, b) => b.at - a.at || b.n - a.n);
}
