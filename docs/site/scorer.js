/* How results of a search are ordered: guides, functions and classes come before attributes, and before pages that mention
   everything, such as the changelog. A result is page, title, anchor, description, score. */
const LAST = /^(changelog|design|reproduction\/)/;
const FIRST = /^(how-to|concepts|index)/;
var Scorer = {
  score: ([page, , , description, score]) => {
    if (LAST.test(page)) return score - 4;
    if (/^Python (attribute|property|method)/.test(description ?? "")) return score - 12;
    return FIRST.test(page) ? score + 1 : score;
  },
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
