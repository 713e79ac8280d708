// Talking to the server: requests with the token, and the stream of events, which resumes where it was cut.

const KEPT_AS = "headrace-token";

/** The token comes in the address after #, which browsers send to nobody; it is kept for this tab and taken out of the address. */
function readToken() {
  const given = new URLSearchParams(location.hash.slice(1)).get("token");
  if (given) {
    sessionStorage.setItem(KEPT_AS, given);
    history.replaceState(null, "", location.pathname + location.search);
  }
  return sessionStorage.getItem(KEPT_AS);
}

let token = readToken();
addEventListener("hashchange", () => {
  token = readToken();
  document.dispatchEvent(new CustomEvent("token"));
});
export const mayChange = () => Boolean(token);

/** What the server refused, in its words, and where in the SQL. */
export class Refused extends Error {
  constructor(status, answer) {
    super(answer.error ?? `the server answered ${status}`);
    this.status = status;
    this.place = answer.place ?? null;
  }
}

export async function ask(method, path, body) {
  const headers = {};
  if (body !== undefined) headers["Content-Type"] = "application/json";
  if (method !== "GET" && token) headers["X-Headrace-Token"] = token;
  const answer = await fetch(path, { method, headers, body: body === undefined ? undefined : JSON.stringify(body) });
  const said = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Refused(answer.status, said);
  return said;
}

export const queryPath = (name, rest = "") => `/api/queries/${encodeURIComponent(name)}${rest}`;

const QUIET = 40000; // milliseconds without a sign of life, which comes every 15 seconds, until the connection is taken for dead
const AGAIN = 1500; // milliseconds until a new attempt

/**
 * Follow the desk. `handle` has a function for each kind of event; `position()` says, for each query, the last result that is here.
 * EventSource comes back by itself with the last id it saw, unless the server refused; then, or when nothing is heard, a new one is
 * made from the positions.
 */
export function followEvents(handle, position) {
  let source = null;
  let heard = 0;
  const open = () => {
    source?.close();
    heard = Date.now();
    const after = Object.entries(position()).map(([id, number]) => `${encodeURIComponent(id)}:${number}`).join(",");
    source = new EventSource(`/api/events?last=500&after=${encodeURIComponent(after)}`);
    source.onopen = () => {
      heard = Date.now();
      handle.link("live");
    };
    source.onerror = () => {
      handle.link("waiting");
      if (source.readyState === EventSource.CLOSED) setTimeout(open, AGAIN);
    };
    for (const kind of ["results", "status", "alive"]) {
      source.addEventListener(kind, (event) => {
        heard = Date.now();
        if (kind !== "alive") handle[kind](JSON.parse(event.data));
      });
    }
  };
  open();
  setInterval(() => {
    if (Date.now() - heard > QUIET) open();
  }, 5000);
  addEventListener("pagehide", () => source?.close());
}
