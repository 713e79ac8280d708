// The SQL editor: a textarea, shades behind it that colour words and mark the mistake, and a list of completions.
import { el, byId } from "./dom.js";

const KEYWORDS = ["SELECT", "FROM", "WHERE", "AND", "OR", "NOT", "AS", "LIKE", "IN", "IS", "NULL", "BETWEEN", "GROUP BY", "ORDER BY", "LIMIT", "DESC", "ASC"];
const WORDS = new Set(KEYWORDS.flatMap((word) => word.toLowerCase().split(" ")));
const TOKEN = /('(?:[^']|'')*'?|"[^"]*"?)|(--[^\n]*)|([A-Za-z_]\w*)|(\d+(?:\.\d+)?)/g;
const MOST_SHOWN = 12; // completions: more are not looked through but typed on

export class Editor {
  /** `onChange` is told of every change, `onRun` of Ctrl+Enter. */
  constructor({ onChange, onRun }) {
    this.area = byId("sql");
    this.shades = byId("shades");
    this.list = byId("completions");
    this.mistake = null;
    this.offers = [];
    this.chosen = 0;
    this.columns = [];
    this.functions = [];
    this.feeds = [];
    this.onChange = onChange;
    this.onRun = onRun;
    this.area.addEventListener("input", () => {
      this.mistake = null;
      this.shade();
      this.complete(false);
      onChange();
    });
    this.area.addEventListener("scroll", () => this.follow());
    this.area.addEventListener("keydown", (event) => this.key(event));
    this.area.addEventListener("blur", () => this.close());
    this.list.addEventListener("pointerdown", (event) => {
      const option = event.target.closest("[role=option]");
      if (!option) return;
      event.preventDefault();
      this.accept(Number(option.dataset.index));
    });
  }

  get text() {
    return this.area.value;
  }

  set text(sql) {
    this.area.value = sql;
    this.mistake = null;
    this.close();
    this.shade();
  }

  /** Mark where the query is wrong: `at` and `length` in characters, or nothing. */
  mark(mistake) {
    this.mistake = mistake && mistake.at !== null ? mistake : null;
    this.area.setAttribute("aria-invalid", String(Boolean(mistake)));
    this.shade();
  }

  /** Put the caret where the mistake is. */
  goTo(mistake) {
    this.area.focus();
    this.area.setSelectionRange(mistake.at, mistake.at + mistake.length);
  }

  shade() {
    const text = this.text;
    const parts = [];
    let at = 0;
    const plain = (end) => {
      if (end > at) parts.push([at, end, ""]);
      at = end;
    };
    for (const token of text.matchAll(TOKEN)) {
      const [word, string, remark, name, number] = token;
      let kind = "";
      if (string) kind = "string";
      else if (remark) kind = "remark";
      else if (number) kind = "number";
      else if (name && WORDS.has(name.toLowerCase())) kind = "keyword";
      else if (name && text[token.index + word.length] === "(") kind = "call";
      if (!kind) continue;
      plain(token.index);
      parts.push([token.index, token.index + word.length, kind]);
      at = token.index + word.length;
    }
    plain(text.length);
    this.shades.replaceChildren(...parts.flatMap(([begin, end, kind]) => this.pieces(text, begin, end, kind)), "\n");
    this.follow();
  }

  /** A token as spans, cut where the mistake begins and ends. */
  pieces(text, begin, end, kind) {
    const { at, length } = this.mistake ?? { at: -1, length: 0 };
    const stop = at + Math.max(1, length);
    const cuts = [begin, at, stop, end].filter((cut) => cut >= begin && cut <= end).sort((a, b) => a - b);
    const found = [];
    for (let i = 0; i + 1 < cuts.length; i++) {
      if (cuts[i] === cuts[i + 1]) continue;
      const wrong = cuts[i] >= at && cuts[i] < stop;
      const name = [kind && `sql-${kind}`, wrong && "sql-wrong"].filter(Boolean).join(" ");
      found.push(el("span", { class: name || null }, text.slice(cuts[i], cuts[i + 1])));
    }
    return found;
  }

  follow() {
    this.shades.scrollTop = this.area.scrollTop;
    this.shades.scrollLeft = this.area.scrollLeft;
  }

  key(event) {
    const open = !this.list.hidden;
    if (event.key === "Enter" && (event.ctrlKey || event.metaKey)) {
      event.preventDefault();
      this.close();
      this.onRun();
    } else if (event.key === " " && event.ctrlKey) {
      event.preventDefault();
      this.complete(true);
    } else if (!open) {
      return;
    } else if (event.key === "ArrowDown" || event.key === "ArrowUp") {
      event.preventDefault();
      this.choose(this.chosen + (event.key === "ArrowDown" ? 1 : -1));
    } else if (event.key === "Enter" || event.key === "Tab") {
      event.preventDefault();
      this.accept(this.chosen);
    } else if (event.key === "Escape") {
      event.preventDefault();
      this.close();
    }
  }

  /** What could stand at the caret: columns after an alias and a dot, addresses in rss('…'), else words, functions and aliases. */
  candidates() {
    const before = this.text.slice(0, this.area.selectionStart);
    const address = /rss\s*\(\s*(['"])([^'"]*)$/i.exec(before);
    if (address) return { typed: address[2], offers: this.feeds.map((url) => ({ text: url, kind: "feed" })) };
    if ((before.match(/'/g)?.length ?? 0) % 2) return { typed: "", offers: [] };
    const column = /([A-Za-z_]\w*)\.(\w*)$/.exec(before);
    if (column) return { typed: column[2], offers: this.columns.map(({ name, type }) => ({ text: name, kind: type })) };
    const typed = /[A-Za-z_]\w*$/.exec(before)?.[0] ?? "";
    const aliases = [...this.text.matchAll(/rss\s*\([^)]*\)\s*(?:as\s+)?([A-Za-z_]\w*)/gi)].map((found) => found[1]);
    return {
      typed,
      offers: [
        ...aliases.filter((name) => !WORDS.has(name.toLowerCase())).map((name) => ({ text: `${name}.`, kind: "alias" })),
        ...this.functions.map((name) => ({ text: `${name}(`, kind: "function" })),
        ...KEYWORDS.map((word) => ({ text: word, kind: "" })),
      ],
    };
  }

  complete(asked) {
    const { typed, offers } = this.candidates();
    const small = typed.toLowerCase();
    const dot = this.text[this.area.selectionStart - typed.length - 1] === ".";
    const fitting = offers.filter(({ text }) => text.toLowerCase().startsWith(small) && text.toLowerCase() !== small);
    this.typed = typed;
    this.offers = asked || typed.length > 1 || dot ? fitting.slice(0, MOST_SHOWN) : [];
    if (!this.offers.length) return this.close();
    this.list.replaceChildren(
      ...this.offers.map(({ text, kind }, index) =>
        el("li", { role: "option", id: `completion-${index}`, "data-index": index }, text, el("span", { class: "kind" }, kind)),
      ),
    );
    this.list.hidden = false;
    this.place();
    this.area.setAttribute("aria-controls", "completions");
    this.choose(0);
    return undefined;
  }

  /** Put the list below the caret, whose place the shades know: a mark in the same text. */
  place() {
    const mark = el("span", {}, "\u200b");
    const measure = this.shades.cloneNode(false);
    measure.removeAttribute("id");
    measure.classList.add("measure");
    measure.append(this.text.slice(0, this.area.selectionStart - this.typed.length), mark);
    this.shades.parentElement.append(measure);
    const top = mark.offsetTop + mark.offsetHeight - this.area.scrollTop;
    const left = mark.offsetLeft - this.area.scrollLeft;
    measure.remove();
    const most = this.area.clientWidth - this.list.offsetWidth - 8;
    this.list.style.top = `${top + 4}px`;
    this.list.style.left = `${Math.max(8, Math.min(left, most))}px`;
  }

  choose(index) {
    this.chosen = (index + this.offers.length) % this.offers.length;
    for (const option of this.list.children) {
      const chosen = Number(option.dataset.index) === this.chosen;
      option.setAttribute("aria-selected", String(chosen));
      if (chosen) option.scrollIntoView({ block: "nearest" });
    }
    this.area.setAttribute("aria-activedescendant", `completion-${this.chosen}`);
  }

  accept(index) {
    const end = this.area.selectionStart;
    this.area.setRangeText(this.offers[index].text, end - this.typed.length, end, "end");
    this.area.focus();
    this.area.dispatchEvent(new Event("input"));
    if (!this.area.value.slice(0, this.area.selectionStart).endsWith(".")) this.close();
  }

  close() {
    this.list.hidden = true;
    this.area.removeAttribute("aria-activedescendant");
    this.area.removeAttribute("aria-controls");
  }
}
