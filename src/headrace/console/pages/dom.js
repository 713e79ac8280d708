// Making elements. Text is always text: nothing here, or anywhere in these pages, parses HTML.

/** An element with attributes and children; a string child becomes a text node. */
export function el(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === true) element.setAttribute(name, "");
    else if (value !== false && value !== null && value !== undefined) element.setAttribute(name, value);
  }
  element.append(...children.filter((child) => child !== null && child !== undefined));
  return element;
}

export const byId = (id) => document.getElementById(id);

/**
 * Make the children of a list those of `items`, in order, and keep the elements that are there already: whoever has the keyboard
 * focus in one of them keeps it while results arrive around it.
 */
export function reconcile(parent, items, key, make) {
  const held = new Map();
  for (const child of parent.children) held.set(child.dataset.key, child);
  let at = parent.firstElementChild;
  for (const item of items) {
    const name = String(key(item));
    let element = held.get(name);
    if (element) held.delete(name);
    else {
      element = make(item);
      element.dataset.key = name;
    }
    if (element === at) at = at.nextElementSibling;
    else parent.insertBefore(element, at);
  }
  for (const element of held.values()) element.remove();
}

/** Set an element's text only where it differs, so that a screen reader is not told again. */
export function setText(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** A link to a page that a feed names: only to the web, and never with what this page knows. */
export function outsideLink(address, text) {
  let url;
  try {
    url = new URL(address);
  } catch {
    return text;
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") return text;
  return el("a", { href: url.href, rel: "noopener noreferrer nofollow", target: "_blank" }, text);
}

/** At most one call in `wait` milliseconds, the last one always made. */
export function throttle(call, wait) {
  let timer = null;
  return () => {
    timer ??= setTimeout(() => {
      timer = null;
      call();
    }, wait);
  };
}

const time = new Intl.DateTimeFormat(undefined, { hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const day = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit", hourCycle: "h23" });
const minute = new Intl.DateTimeFormat(undefined, { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });
export const showMinute = (milliseconds) => minute.format(milliseconds);
export const showTime = (milliseconds) => time.format(milliseconds);
export const showDay = (milliseconds) => day.format(milliseconds);
export const showNumber = (number) => number.toLocaleString();

/** Bytes as a person reads them. */
export function showSize(bytes) {
  const units = ["B", "KiB", "MiB", "GiB"];
  let unit = 0;
  let size = bytes;
  while (size >= 1024 && unit < units.length - 1) [size, unit] = [size / 1024, unit + 1];
  return `${unit && size < 100 ? size.toFixed(1) : Math.round(size)} ${units[unit]}`;
}

/** How long ago, in words. */
export function showAgo(seconds) {
  if (seconds < 2) return "now";
  if (seconds < 90) return `${Math.round(seconds)} s ago`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min ago`;
  return `${Math.round(seconds / 3600)} h ago`;
}
