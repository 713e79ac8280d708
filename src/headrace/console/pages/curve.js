// Results over time: a curve for each query, drawn by uPlot.
import { byId, showNumber } from "./dom.js";

const HEIGHT = 165; // pixels
const COLOURS = 6;
const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

export class Curve {
  constructor() {
    this.host = byId("curve");
    this.plot = null;
    this.made = "";
    new ResizeObserver(() => this.plot?.setSize({ width: this.host.clientWidth, height: HEIGHT })).observe(this.host);
  }

  /** Draw the curves of all queries up to `now` (milliseconds); the selected one is thicker. */
  show(store, now, clockShown) {
    const queries = [...store.queries.values()];
    const made = JSON.stringify([queries.map(({ id }) => id), store.selected, document.documentElement.dataset.theme, matchMedia("(prefers-color-scheme: dark)").matches]);
    const data = align(queries.map((query) => query.curve), now);
    if (made !== this.made) {
      this.plot?.destroy();
      this.made = made;
      this.plot = queries.length ? new uPlot(this.options(queries, store.selected, clockShown), data, this.host) : null;
    } else this.plot?.setData(data);
    const current = store.current;
    this.host.setAttribute("aria-label", current ? `Results over time; ${current.name} has ${showNumber(current.count)}` : "Results over time");
  }

  options(queries, selected, clockShown) {
    const axis = { stroke: colour("--muted"), grid: { stroke: colour("--line"), width: 1 }, ticks: { show: false }, font: "11px system-ui" };
    return {
      width: this.host.clientWidth,
      height: HEIGHT,
      cursor: { show: false },
      legend: { show: false },
      scales: { y: { range: (_, low, high) => [0, Math.max(5, high * 1.08)] } },
      axes: [
        { ...axis, size: 24, space: 70, values: (_, marks) => marks.map((mark) => clockShown(mark * 1000)) },
        { ...axis, size: 42, space: 30 },
      ],
      series: [
        {},
        ...queries.map((query) => ({
          label: query.name,
          stroke: colour(`--q${query.colour % COLOURS}`),
          width: query.id === selected ? 2.5 : 1.2,
          points: { show: false },
          spanGaps: true,
          paths: uPlot.paths.stepped({ align: 1 }),
        })),
      ],
    };
  }
}

/** Curves on one axis of time: at every moment of any of them, each has its value or a gap. */
function align(curves, now) {
  const moments = [...new Set([...curves.flatMap((curve) => curve.map(([at]) => at)), now])].sort((a, b) => a - b);
  const index = new Map(moments.map((at, i) => [at, i]));
  const rows = curves.map((curve) => {
    const row = Array(moments.length).fill(null);
    for (const [at, results] of curve) row[index.get(at)] = results;
    if (curve.length) row[moments.length - 1] = curve[curve.length - 1][1];
    return row;
  });
  return [moments.map((at) => at / 1000), ...rows];
}
