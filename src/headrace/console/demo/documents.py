"""The documents: what each feed of the day said at a moment, in the shape of the public feeds."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime
from email.utils import format_datetime
from xml.sax.saxutils import escape, quoteattr

from headrace.console.demo.day import Alert, Day, Quake
from headrace.console.demo.places import PLACES, Place

QUAKES = "https://earthquakes.example/summary/all_day.atom"
ALERTS = "https://alerts.example/alerts/active.atom"
PLACES_FEED = "https://places.example/cities.rss"
FEEDS = (QUAKES, ALERTS, PLACES_FEED)
_SHOWN = 86_400.0  # seconds for which an earthquake is listed: the public feed is of the past day
_ATOM = 'xmlns="http://www.w3.org/2005/Atom" xmlns:georss="http://www.georss.org/georss"'
_CAP = 'xmlns:cap="urn:oasis:names:tc:emergency:cap:1.2"'
_GEO = 'xmlns:geo="http://www.w3.org/2003/01/geo/wgs84_pos#"'


def document(day: Day, url: str, now: float) -> bytes:
    """What a feed said at a moment (seconds since 1970)."""
    if url == QUAKES:
        told = [quake for quake in day.quakes if quake.told <= now and quake.at > now - _SHOWN]
        latest = max((quake.updated(now) for quake in told), default=day.begin)
        return _atom(
            "Earthquakes, past day (recorded)", url, latest, "", (_quake(quake, now) for quake in reversed(told))
        )
    if url == ALERTS:
        active = [alert for alert in day.alerts if alert.at <= now < alert.expires]
        latest = max((alert.at for alert in active), default=day.begin)
        return _atom(
            "Active weather alerts (recorded)", url, latest, f" {_CAP}", (_alert(alert) for alert in reversed(active))
        )
    return _places()


def _atom(title: str, url: str, updated: float, spaces: str, entries: Iterable[str]) -> bytes:
    link = f'<link rel="self" href={quoteattr(url)}/>'
    head = f"<title>{title}</title><id>{url}</id>{link}<updated>{_iso(updated)}</updated>"
    body = "\n".join(entries)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<feed {_ATOM}{spaces}>{head}\n{body}\n</feed>\n'.encode()


def _quake(quake: Quake, now: float) -> str:
    known = quake.known(now)
    facts = f"<dl><dt>Time</dt><dd>{_iso(quake.at)}</dd><dt>Depth</dt><dd>{quake.depth:.1f} km</dd></dl>"
    name = f"mu{quake.number:05d}"
    return (
        f"<entry><id>urn:earthquakes-example:mu:{name}</id><title>{escape(quake.title(now))}</title>"
        f"<published>{_iso(quake.at)}</published><updated>{_iso(quake.updated(now))}</updated>"
        f'<link rel="alternate" type="text/html" href="https://earthquakes.example/event/{name}"/>'
        f'<summary type="html">{escape(facts)}</summary><georss:point>{quake.latitude} {quake.longitude}</georss:point>'
        f'<georss:elev>{-1000 * quake.depth:.0f}</georss:elev><category label="Magnitude" term="Magnitude {int(known)}"/></entry>'
    )


def _alert(alert: Alert) -> str:
    name = f"urn:oid:2.49.0.1.840.0.{alert.number:06d}"
    title = f"{alert.kind} issued {_iso(alert.at)} for the area of {alert.place.name}"
    corners = " ".join(f"{latitude},{longitude}" for latitude, longitude in alert.corners)
    return (
        f"<entry><id>{name}</id><title>{escape(title)}</title><published>{_iso(alert.at)}</published><updated>{_iso(alert.at)}</updated>"
        f'<link rel="alternate" href="https://alerts.example/alerts/{name}"/><author><name>Recorded</name></author>'
        f"<summary>{escape(alert.text)}</summary><cap:event>{alert.kind}</cap:event><cap:effective>{_iso(alert.at)}</cap:effective>"
        f"<cap:expires>{_iso(alert.expires)}</cap:expires><cap:status>Actual</cap:status><cap:msgType>Alert</cap:msgType>"
        f"<cap:severity>{alert.severity}</cap:severity><cap:areaDesc>{escape(alert.place.name)}</cap:areaDesc>"
        f"<cap:polygon>{corners}</cap:polygon><georss:polygon>{corners.replace(',', ' ')}</georss:polygon>"
        f'<category term="{alert.severity}"/></entry>'
    )


def _places() -> bytes:
    items = "\n".join(_place(place) for place in PLACES)
    about = "<link>https://places.example/</link><description>Cities and where they are</description><ttl>60</ttl>"
    channel = f"<channel><title>Cities (recorded)</title>{about}\n{items}\n</channel>"
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<rss version="2.0" {_GEO}>{channel}</rss>\n'.encode()


def _place(place: Place) -> str:
    name = f"{place.name}, {place.country}"
    link = f"https://places.example/{place.latitude},{place.longitude}"
    return (
        f'<item><guid isPermaLink="false">{link}</guid><title>{escape(name)}</title><link>{link}</link>'
        f"<category>{escape(place.country)}</category><pubDate>{_FOUNDED}</pubDate>"
        f"<geo:lat>{place.latitude}</geo:lat><geo:long>{place.longitude}</geo:long></item>"
    )


def _iso(moment: float) -> str:
    return datetime.fromtimestamp(moment, UTC).isoformat(timespec="seconds").replace("+00:00", "Z")


_FOUNDED = format_datetime(datetime(2026, 1, 1, tzinfo=UTC), usegmt=True)
