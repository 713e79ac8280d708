// The feed desk: what the person does, what the server says, and what is shown of it.
import { byId, el, setText, showMinute, showNumber, showSize, showTime, throttle } from "./dom.js";
import { Refused, ask, followEvents, mayChange, queryPath } from "./server.js";
import { Editor } from "./editor.js";
import { Store, chosenRows } from "./store.js";
import { showFeeds, showQueries, showReader, showTable } from "./lists.js";
import { ResultMap, describeMap, noteMap, showLegend } from "./map.js";
import { Curve } from "./curve.js";
import { loadAssets } from "./loading.js";
import { followTheme } from "./theme.js";

const PAGE = 100; // results that reader and table show at once
const THINKS = 350; // milliseconds after the last key until the plan is asked for
const NEW_QUERY = "SELECT a.title, b.title\nFROM rss('https://…') a, rss('https://…') b\nWHERE a.title = b.title";

const store = new Store();
const view = { tab: "map", shown: PAGE, map: null, curve: null, clock: { at: Date.now(), now: Date.now(), speed: 1 }, spoken: 0, failed: new Set() };
const now = () => view.clock.now + (Date.now() - view.clock.at) * view.clock.speed;
const editor = new Editor({ onChange: () => edited(), onRun: () => run() });

// ---- what the person writes -------------------------------------------------------------------

let thinking = null;
function edited() {
  clearTimeout(thinking);
  thinking = setTimeout(think, THINKS);
  showButtons();
}

async function think() {
  const sql = editor.text;
  if (!sql.trim() || !mayChange()) {
    explain("", null);
    return null;
  }
  const [plan, error] = await planOf(sql);
  if (sql === editor.text) explain(plan, error);
  return error;
}

/** The plan of a query, or what is wrong with it. */
async function planOf(sql) {
  try {
    const answer = await ask("POST", "/api/plan", { sql });
    return answer.error ? ["", new Refused(200, answer)] : [answer.plan, null];
  } catch (error) {
    return ["", error];
  }
}

/** Show the plan of what is written, or what is wrong with it, and where. */
function explain(plan, error) {
  setText(byId("plan"), plan);
  byId("plan-box").hidden = !plan;
  editor.mark(error?.place ?? (error ? { at: null } : null));
  const box = byId("mistake");
  if (!error) return box.replaceChildren();
  const said = error instanceof TypeError ? "The server does not answer." : error.message;
  const { line, column, at } = error.place ?? {};
  const parts = [el("span", { class: "mistake-text" }, said)];
  if (at !== undefined && at !== null) {
    const jump = el("button", { type: "button", class: "quiet" }, `Line ${line}, column ${column}`);
    jump.addEventListener("click", () => editor.goTo(error.place));
    parts.unshift(jump);
  }
  return box.replaceChildren(...parts);
}

async function change(method, path, body) {
  try {
    store.status(await ask(method, path, body), now());
    return true;
  } catch (error) {
    explain("", error);
    byId("plan-box").hidden = true;
    return false;
  } finally {
    render();
  }
}

async function put(runs) {
  const name = byId("name").value.trim();
  if (!name) {
    byId("name").focus();
    explain("", new Error("Give the query a name."));
    return;
  }
  if (await think()) return;
  if (!(await change("PUT", queryPath(name), { sql: editor.text, run: runs }))) return;
  const made = [...store.queries.values()].find((query) => query.name === name);
  if (made) select(made.id, false);
  speak(`${name} ${runs ? "runs" : "is saved"}`);
}

const run = () => put(true);
const act = (what) => store.current && change("POST", queryPath(store.current.name, `/${what}`));

function select(id, fills = true) {
  store.selected = id;
  view.shown = PAGE;
  const query = store.current;
  if (fills) {
    byId("name").value = query?.name ?? "";
    editor.text = query?.sql ?? "";
    think();
  }
  render();
}

function showButtons() {
  const query = store.current;
  const named = query && byId("name").value.trim() === query.name;
  const changed = query && editor.text.trim() !== query.sql.trim();
  const may = mayChange();
  const running = query?.state === "running";
  byId("run").disabled = !may || (named && running && !changed);
  byId("save").disabled = !may || Boolean(named && !changed);
  byId("stop").disabled = !may || !named || !running;
  byId("remove").disabled = !may || !named;
  const state = byId("state");
  const text = !query ? "new" : named && changed ? (query.count ? "changed: begins anew" : "changed") : query.state;
  setText(state, text);
  state.dataset.state = !query ? "new" : changed ? "changed" : query.state;
}

// ---- what is shown ----------------------------------------------------------------------------

const rowsOf = (query) => chosenRows(query.results, byId("search").value, byId("sort").value);

function render() {
  const query = store.current;
  showQueries(store, (id) => select(id));
  showFeeds(store, now());
  showButtons();
  showCounters(query);
  view.curve?.show(store, now(), showTime);
  const rows = query ? rowsOf(query) : [];
  const total = query?.count ?? 0;
  setText(byId("count"), `Displaying ${showNumber(rows.length)} / ${showNumber(total)}`);
  showPanel(query, rows, total);
  showSubscribe(query);
}

function showPanel(query, rows, total) {
  const some = rows.slice(0, view.shown);
  if (view.tab === "map") showMap();
  if (view.tab === "reader" && query) showReader(query, some, (row) => onMap(query, row));
  if (view.tab === "table" && query) showTable(query, some);
  const older = query && query.results.length < total;
  for (const kind of ["reader", "table"]) {
    const more = byId(`${kind}-more`);
    more.hidden = !(rows.length > some.length || older);
    setText(more, rows.length > some.length ? "Show more" : "Show older results");
  }
  const empty = byId("empty");
  const searching = byId("search").value.trim();
  const text = !query ? "Choose a query, or write one and run it." : rows.length ? "" : searching ? "No result has all these words." : "No results yet.";
  empty.hidden = !text || (view.tab === "map" && view.map !== null && !searching && Boolean(query));
  setText(empty, text);
}

function showMap() {
  if (!view.map) return;
  for (const id of view.map.layers.keys()) {
    if (!store.queries.get(id)?.shown) view.map.drop(id);
  }
  for (const query of store.queries.values()) {
    if (query.shown) view.map.show(query, rowsOf(query));
  }
  describeMap(view.map.count);
  showLegend(store, (id) => {
    const query = store.queries.get(id);
    query.shown = !query.shown;
    render();
  });
}

function onMap(query, row) {
  if (!view.map) return;
  query.shown = true;
  openTab("map");
  view.map.goTo(query, row);
}

const COUNTERS = [
  ["items", "Items in", showNumber],
  ["count", "Results", showNumber],
  ["memory", "Memory", showSize],
  ["flushed", "Flushed", showNumber],
];

function showCounters(query) {
  const host = byId("counters");
  if (!host.childElementCount) {
    host.append(...COUNTERS.map(([key, label]) => el("div", {}, el("dt", {}, label), el("dd", { id: `counter-${key}` }, "–"))));
  }
  for (const [key, , form] of COUNTERS) setText(byId(`counter-${key}`), query ? form(query[key]) : "–");
  setText(byId("figures-heading"), query ? query.name : "Counters");
}

function showSubscribe(query) {
  byId("subscribe").hidden = !query;
  if (!query) return;
  for (const format of ["rss", "atom", "json"]) {
    const link = byId(`feed-${format}`);
    const address = `/feeds/${encodeURIComponent(query.name)}.${format}`;
    if (link.getAttribute("href") !== address) {
      link.setAttribute("href", address);
      link.setAttribute("aria-label", `${format.toUpperCase()} feed of ${query.name}`);
    }
  }
}

async function showMore() {
  const query = store.current;
  view.shown += PAGE;
  if (query && rowsOf(query).length < view.shown && query.results.length < query.count) {
    const first = query.results[0]?.n ?? query.count + 1;
    const limit = Math.min(500, first - 1);
    query.browsing = true;
    if (limit > 0) {
      const { rows } = await ask("GET", queryPath(query.name, `/results?after=${first - 1 - limit}&limit=${limit}`));
      store.results(query.id, rows, true);
    }
  }
  render();
}

function openTab(name) {
  view.tab = name;
  for (const tab of document.querySelectorAll("[role=tab]")) {
    const chosen = tab.id === `tab-${name}`;
    tab.setAttribute("aria-selected", String(chosen));
    tab.tabIndex = chosen ? 0 : -1;
    byId(tab.getAttribute("aria-controls")).hidden = !chosen;
  }
  render();
  view.map?.map.invalidateSize({ animate: false });
}

const SPEAKS = 5000; // milliseconds between two sentences of a screen reader about results that arrive
function speak(text) {
  setText(byId("spoken"), text);
  view.spoken = Date.now();
}

function notice(parts) {
  const box = byId("notice");
  box.hidden = !parts.length;
  box.replaceChildren(...parts.map((part) => el("p", {}, part)));
}

// ---- what the server says ---------------------------------------------------------------------

const draw = throttle(render, 80);
const handle = {
  link(state) {
    byId("link").dataset.state = state;
    setText(byId("link-text"), state === "live" ? "live" : "connecting");
  },
  status(said) {
    store.status(said, now());
    if (!store.selected && store.queries.size && !editor.text.trim()) select([...store.queries.keys()][0]);
    draw();
  },
  results({ query: id, rows }) {
    const fresh = store.results(id, rows);
    const arrived = view.live ? Date.now() : 0;
    for (const row of fresh) row.arrived = arrived;
    if (fresh.length && id === store.selected && Date.now() - view.spoken > SPEAKS) speak(`${fresh.length} new results`);
    draw();
  },
};

function notices(state) {
  const parts = [];
  if (!mayChange()) parts.push("Opened without the token: you can watch, not change. Open the address that the server printed when it started.");
  if (state.missing.length) parts.push(`Missing: ${state.missing.join(", ")}. Run make setup; until then there is no map or curve, and all else works.`);
  notice(parts);
}

function showRecorded(recorded) {
  if (!recorded) return;
  byId("recorded").hidden = false;
  const show = () => setText(byId("recorded"), now() < recorded.end ? `Recorded day: ${showMinute(now())}` : "Recorded day: over");
  show();
  setInterval(show, 1000);
}

async function begin() {
  const state = await ask("GET", "/api/state");
  view.clock = { at: Date.now(), now: state.now, speed: state.recorded?.speed ?? 1 };
  editor.columns = state.columns;
  editor.functions = state.functions;
  editor.feeds = state.feeds.shown.map(({ url }) => url);
  store.status(state, now());
  for (const [id, curve] of Object.entries(state.curves)) {
    const query = store.queries.get(id);
    if (query) query.curve = curve;
  }
  showRecorded(state.recorded);
  notices(state);
  document.addEventListener("token", () => {
    notices(state);
    think();
    render();
  });
  const assets = await loadAssets(state.missing);
  if (assets.map) view.map = new ResultMap(assets.map);
  else noteMap("There is no map: its files are missing. Run make setup. Reader and table show the same results.");
  if (assets.curve) view.curve = new Curve();
  followTheme(() => {
    view.map?.restyle();
    render();
  });
  if (store.queries.size) select([...store.queries.keys()][0]);
  else editor.text = NEW_QUERY;
  render();
  followEvents(handle, () => store.position());
  setTimeout(() => (view.live = true), 2000);
  setInterval(draw, 2000);
}

// ---- buttons ----------------------------------------------------------------------------------

byId("run").addEventListener("click", run);
byId("save").addEventListener("click", () => put(false));
byId("stop").addEventListener("click", () => act("stop"));
byId("remove").addEventListener("click", async () => {
  if (store.current && (await change("DELETE", queryPath(store.current.name)))) select([...store.queries.keys()][0] ?? null);
});
byId("new").addEventListener("click", () => {
  store.selected = null;
  byId("name").value = "";
  editor.text = NEW_QUERY;
  explain("", null);
  render();
  byId("name").focus();
});
byId("name").addEventListener("input", showButtons);
byId("search").addEventListener("input", () => {
  view.shown = PAGE;
  draw();
});
byId("sort").addEventListener("change", render);
for (const kind of ["reader", "table"]) byId(`${kind}-more`).addEventListener("click", showMore);
for (const tab of document.querySelectorAll("[role=tab]")) {
  tab.addEventListener("click", () => openTab(tab.id.slice(4)));
  tab.addEventListener("keydown", (event) => {
    const tabs = [...document.querySelectorAll("[role=tab]")];
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const to = event.key === "Home" ? 0 : event.key === "End" ? tabs.length - 1 : step && (tabs.indexOf(tab) + step + tabs.length) % tabs.length;
    if (to === undefined) return;
    event.preventDefault();
    openTab(tabs[to].id.slice(4));
    tabs[to].focus();
  });
}

begin().catch((error) => notice([`The page could not begin: ${error.message}`]));
