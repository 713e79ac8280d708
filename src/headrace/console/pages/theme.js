// Light and dark: as the system says, or as the person chose.
import { byId, setText } from "./dom.js";

const KEPT_AS = "headrace-theme";
const CHOICES = { auto: ["Auto", "Auto: colours as the system has them"], light: ["Light", "Light colours"], dark: ["Dark", "Dark colours"] };

function apply(choice) {
  if (choice === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = choice;
  const [text, label] = CHOICES[choice];
  setText(byId("theme"), text);
  byId("theme").setAttribute("aria-label", label);
}

let chosen = localStorage.getItem(KEPT_AS);
if (!(chosen in CHOICES)) chosen = "auto";
apply(chosen);

/** Tell whoever draws with colours when they change. */
export function followTheme(tell) {
  byId("theme").addEventListener("click", () => {
    const names = Object.keys(CHOICES);
    chosen = names[(names.indexOf(chosen) + 1) % names.length];
    localStorage.setItem(KEPT_AS, chosen);
    apply(chosen);
    tell();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", tell);
}
