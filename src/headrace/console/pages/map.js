// The map: outlines of the world, and for each query marks, boxes and lines between the places of a result.
import { byId, el, setText, showDay } from "./dom.js";
import { rowTitle } from "./store.js";

const MOST_RESULTS = 1500; // of a query on the map: the newest; more are a blot, and slow
const FRESH = 4000; // milliseconds for which a new mark is drawn larger
const COLOURS = 6;

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class ResultMap {
  /** Leaflet and topojson are loaded; `world` is the topology of countries. */
  constructor(world) {
    this.layers = new Map();
    this.results = new Map();
    this.map = L.map(byId("map"), {
      preferCanvas: true, worldCopyJump: true, minZoom: 1, maxZoom: 9, zoomSnap: 0.25, attributionControl: false, zoomControl: false,
      maxBounds: [[-85, -360], [85, 360]],
    }).setView([22, 0], 1.75);
    L.control.zoom({ position: "bottomright" }).addTo(this.map);
    const pane = this.map.createPane("land");
    pane.style.zIndex = 250;
    this.land = L.geoJSON(unwrapped(topojson.feature(world, world.objects.countries)), { interactive: false, smoothFactor: 1.6, renderer: L.canvas({ pane: "land", padding: 0.3 }), pane: "land" }).addTo(this.map);
    this.restyle();
    this.moved = false;
    this.fitted = false;
    this.map.on("dragstart zoomstart", (event) => {
      this.moved ||= Boolean(event.originalEvent) || event.type === "dragstart";
    });
    byId("map").addEventListener("keydown", () => (this.moved = true));
    byId("map").addEventListener("wheel", () => (this.moved = true), { passive: true });
    new ResizeObserver(() => {
      this.map.invalidateSize({ animate: false });
      if (!this.moved) this.fit();
    }).observe(byId("map"));
  }

  /** Take the colours of the theme. */
  restyle() {
    this.land.setStyle({ fillColor: colour("--land"), fillOpacity: 1, color: colour("--border-land"), weight: 0.7 });
    for (const held of this.layers.values()) {
      const ink = colour(`--q${held.colour % COLOURS}`);
      for (const { mark, style } of held.marks.values()) mark.setStyle(style(ink));
      for (const line of held.lines.values()) line.setStyle({ color: ink });
    }
  }

  /** Show the newest of a query's results that `wanted` lets through, and nothing else of it. */
  show(query, rows) {
    let held = this.layers.get(query.id);
    if (!held) {
      held = { colour: query.colour, group: L.layerGroup().addTo(this.map), marks: new Map(), lines: new Map() };
      this.layers.set(query.id, held);
    }
    const newest = rows.filter((row) => row.places.length).slice(0, MOST_RESULTS);
    const marks = new Map();
    const lines = new Map();
    for (const row of newest) {
      row.places.forEach((place, i) => {
        const key = placeKey(place);
        if (!marks.has(key)) marks.set(key, { place, rows: [], first: i === 0 });
        marks.get(key).rows.push(row);
      });
      if (row.places.length > 1) lines.set(row.places.map(placeKey).join("|"), row);
    }
    const ink = colour(`--q${held.colour % COLOURS}`);
    this.replace(held.lines, lines, (row) => this.line(held, row, ink));
    const made = this.replace(held.marks, marks, (found) => this.mark(held, query, found, ink));
    for (const [key, found] of marks) held.marks.get(key).found = found;
    if (made && !this.moved) this.fit({ only: true });
  }

  /** Bring what is held to what is wanted; returns how many were made. */
  replace(held, wanted, make) {
    for (const [key, one] of held) {
      if (wanted.has(key)) continue;
      (one.mark ?? one).remove();
      held.delete(key);
    }
    let made = 0;
    for (const [key, value] of wanted) {
      if (held.has(key)) continue;
      held.set(key, make(value));
      made += 1;
    }
    return made;
  }

  line(held, row, ink) {
    const points = row.places.map(centre);
    for (let i = 1; i < points.length; i++) {
      // the shorter way round the world
      while (points[i][1] - points[i - 1][1] > 180) points[i][1] -= 360;
      while (points[i][1] - points[i - 1][1] < -180) points[i][1] += 360;
    }
    return L.polyline(points, { color: ink, weight: 1.2, opacity: 0.65, interactive: false }).addTo(held.group);
  }

  mark(held, query, found, ink) {
    const { place, first } = found;
    const isArea = place.box && (place.box.xmax > place.box.xmin || place.box.ymax > place.box.ymin);
    const style = isArea
      ? (now) => ({ color: now, weight: 1.4, opacity: 0.9, fillColor: now, fillOpacity: 0.14 })
      : (now) => ({ color: first ? colour("--card") : now, weight: first ? 1 : 1.6, fillColor: first ? now : colour("--card"), fillOpacity: 0.95 });
    const options = { ...style(ink), bubblingMouseEvents: false };
    const mark = isArea
      ? L.rectangle([[place.box.ymin, place.box.xmin], [place.box.ymax, place.box.xmax]], options)
      : L.circleMarker(centre(place), { ...options, radius: first ? 5 : 4 });
    const one = { mark, style, found };
    mark.bindPopup(() => popup(query, one.found), { maxWidth: 280 });
    mark.addTo(held.group);
    if (Date.now() - (found.rows[0].arrived ?? 0) < FRESH) this.emphasise(mark, isArea, first ? 5 : 4);
    return one;
  }

  /** A new mark is large and becomes small. */
  emphasise(mark, isArea, radius) {
    const still = matchMedia("(prefers-reduced-motion: reduce)").matches;
    if (isArea) {
      mark.setStyle({ weight: 3, fillOpacity: 0.3 });
      setTimeout(() => mark.setStyle({ weight: 1.4, fillOpacity: 0.14 }), FRESH);
      return;
    }
    const steps = still ? [radius] : [12, 11, 10, 9, 8, 7, 6, radius].filter((size) => size >= radius);
    mark.setRadius(steps[0]);
    steps.forEach((size, i) => setTimeout(() => mark.setRadius(size), (i * FRESH) / steps.length / 2));
  }

  drop(id) {
    this.layers.get(id)?.group.remove();
    this.layers.delete(id);
  }

  /** All that is shown, in view; with `only`, when something is not: to move the map is to draw the whole world again. */
  fit({ only = false } = {}) {
    const bounds = L.latLngBounds([]);
    for (const held of this.layers.values()) {
      for (const { mark } of held.marks.values()) bounds.extend(mark.getBounds ? mark.getBounds() : mark.getLatLng());
    }
    if (!bounds.isValid() || (only && this.fitted && this.map.getBounds().contains(bounds))) return;
    this.fitted = true;
    this.map.fitBounds(bounds.pad(0.12), { maxZoom: 6, animate: false });
  }

  /** Go to a result and tell of it. */
  goTo(query, row) {
    this.moved = true;
    const bounds = L.latLngBounds(row.places.map(centre));
    this.map.fitBounds(bounds.pad(0.6), { maxZoom: 6, animate: false });
    L.popup({ maxWidth: 280 }).setLatLng(centre(row.places[0])).setContent(popup(query, { place: row.places[0], rows: [row] })).openOn(this.map);
  }

  get count() {
    return [...this.layers.values()].reduce((sum, held) => sum + held.marks.size, 0);
  }
}

/**
 * Countries that cross the 180th meridian, drawn on both sides of it. As they come, their outlines jump from one edge of the map to the
 * other; here they go on beyond it, and a copy of them comes from beyond the other edge.
 */
function unwrapped({ features }) {
  const polygons = features.flatMap(({ geometry }) => (geometry.type === "Polygon" ? [geometry.coordinates] : geometry.coordinates));
  const made = [];
  for (const rings of polygons) {
    const straight = rings.map(straighten);
    made.push(straight);
    if (straight[0].some(([long]) => Math.abs(long) > 180.01)) {
      const back = straight[0].some(([long]) => long > 180) ? -360 : 360;
      made.push(straight.map((ring) => ring.map(([long, lat]) => [long + back, lat])));
    }
  }
  return { type: "MultiPolygon", coordinates: made };
}

function straighten(ring) {
  let turn = 0;
  const straight = ring.map(([long, lat], i) => {
    if (i) turn += 360 * (long - ring[i - 1][0] < -180) - 360 * (long - ring[i - 1][0] > 180);
    return [long + turn, lat];
  });
  // one that goes once around the world, as Antarctica does, is closed at the pole
  if (turn) straight.push([straight[straight.length - 1][0], -90], [straight[0][0], -90]);
  return straight;
}

const placeKey = (place) => JSON.stringify([place.alias, place.lat, place.long, place.box, place.title]);

function centre({ lat, long, box }) {
  if (lat !== null && long !== null) return [lat, long];
  return [(box.ymin + box.ymax) / 2, (box.xmin + box.xmax) / 2];
}

function popup(query, { place, rows }) {
  const newest = rows.slice(0, 5);
  return el(
    "div",
    { class: "popup" },
    el("p", { class: "popup-title" }, place.title ?? "(no title)"),
    el("p", { class: "popup-note" }, `${place.alias} in ${query.name}, ${rows.length} ${rows.length === 1 ? "result" : "results"}`),
    el("ul", {}, ...newest.map((row) => el("li", {}, el("time", {}, showDay(row.at)), ` ${rowTitle(row)}`))),
  );
}

/** The queries on the map: a button each that shows and hides it. */
export function showLegend(store, onToggle) {
  const legend = byId("legend");
  const known = [...store.queries.values()].map((query) => query.id).join();
  if (legend.dataset.known !== known) {
    legend.dataset.known = known;
    legend.replaceChildren(
      ...[...store.queries.values()].map((query) => {
        const button = el("button", { type: "button", class: "legend-item", "data-id": query.id }, el("span", { class: `swatch colour-${query.colour % COLOURS}` }), query.name);
        button.addEventListener("click", () => onToggle(query.id));
        return button;
      }),
    );
  }
  for (const button of legend.children) button.setAttribute("aria-pressed", String(store.queries.get(button.dataset.id)?.shown ?? false));
}

/** Tell who cannot see it what the map has. */
export function describeMap(count) {
  byId("map").setAttribute("aria-label", `Map of the results with ${count} marks; arrow keys move it, plus and minus zoom`);
  byId("map").dataset.marks = count;
}

/** What the map cannot show, in words. */
export function noteMap(text) {
  const note = byId("map-note");
  note.hidden = !text;
  setText(note, text ?? "");
}
