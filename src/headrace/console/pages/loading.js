// Third-party files: loaded one after the other when they are there, so that a page without them has no errors.
import { el } from "./dom.js";

const script = (path) =>
  new Promise((done, failed) => {
    const element = el("script", { src: `/assets/${path}` });
    element.addEventListener("load", done);
    element.addEventListener("error", () => failed(new Error(`${path} could not be loaded`)));
    document.head.append(element);
  });

const style = (path) =>
  new Promise((done, failed) => {
    const element = el("link", { rel: "stylesheet", href: `/assets/${path}` });
    element.addEventListener("load", done);
    element.addEventListener("error", () => failed(new Error(`${path} could not be loaded`)));
    // before our own, which changes some of it
    document.head.prepend(element);
  });

/** Load what is there: the topology of the world for the map, and whether curves can be drawn. */
export async function loadAssets(missing) {
  const has = (...names) => !names.some((name) => missing.some((one) => one.startsWith(`${name} `)));
  const map = has("leaflet", "topojson-client", "world-atlas")
    ? Promise.all([
        fetch("/assets/world-atlas/countries-50m.json").then((answer) => answer.json()),
        script("leaflet/dist/leaflet.js"),
        script("topojson-client/dist/topojson-client.min.js"),
        style("leaflet/dist/leaflet.css"),
      ])
    : Promise.resolve([null]);
  const curve = has("uplot") ? Promise.all([script("uplot/dist/uPlot.iife.min.js"), style("uplot/dist/uPlot.min.css")]) : Promise.resolve(null);
  const [[world], drawn] = await Promise.all([map, curve]);
  return { map: world, curve: drawn !== null };
}
