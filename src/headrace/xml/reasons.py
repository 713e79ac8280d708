"""What the scanner found wrong, in words."""

from __future__ import annotations

from headrace.kernels import xml_scan as x
from headrace.xml.limits import Limits

_REASONS = {
    x.E_CHARACTER: "a character that XML does not allow, or bytes that are not UTF-8",
    x.E_OUTSIDE: "text outside the root element",
    x.E_MARKUP: "'<' is not followed by a name, '/', '?', '!--', '![CDATA[' or '!DOCTYPE'; write &lt; for the character",
    x.E_SECOND_ROOT: "a second root element",
    x.E_MISMATCH: "an end tag does not have the name of the element that is open",
    x.E_TAG: "a tag is not a name, attributes and '>' or '/>'",
    x.E_SPACE: "there is no space before an attribute",
    x.E_DUPLICATE: "an element has the same attribute twice",
    x.E_EQUALS: "an attribute's name is not followed by '='",
    x.E_QUOTE: "an attribute's value is not in quotes",
    x.E_LESS: "'<' in an attribute's value; write &lt;",
    x.E_REFERENCE: "'&' does not begin a reference such as &amp; or &#65;; write &amp; for the character",
    x.E_ENTITY: "a reference to an entity that is not lt, gt, amp, apos or quot; entities of a DTD are not expanded",
    x.E_NUMBER: "a reference to a character that XML does not allow",
    x.E_CDATA_END: "']]>' in text; write ]]&gt;",
    x.E_COMMENT: "'--' inside a comment",
    x.E_TARGET: "a processing instruction does not begin with a name and a space",
    x.E_DECLARATION: "an XML declaration that is not at the beginning of the document",
    x.E_CDATA: "a CDATA section outside the root element",
    x.E_DOCTYPE: "a document type declaration that is not as <!DOCTYPE name SYSTEM '…' […]>, or not before the root element",
    x.E_SUBSET: "something in a document type declaration that is not a declaration, a comment or a processing instruction",
    x.E_UNFINISHED: "the document ends before its root element does",
    x.E_EMPTY: "the document has no element",
    x.E_UNOPENED: "an end tag, and no element is open",
}  # fmt: skip


def reason_of(code: int, limits: Limits) -> str:
    """Say what an error number of the scanner means."""
    if code == x.E_DEPTH:
        return f"elements are nested more than {limits.depth} deep, the limit (limits=Limits(depth=…) changes it)"
    if code == x.E_LONG:
        return f"a name or reference has more than {limits.name} bytes, the limit (limits=Limits(name=…) changes it)"
    if code == x.E_ATTRIBUTES:
        return f"an element has more than {limits.attributes} attributes, the limit (limits=Limits(attributes=…) changes it)"
    return _REASONS[code]


def too_many_names(limits: Limits) -> str:
    """Say that the table of names is full."""
    return f"there are more than {limits.names} different names, the limit (limits=Limits(names=…) changes it)"
