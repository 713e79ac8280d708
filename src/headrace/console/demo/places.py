"""Places of the demonstration: cities with their positions, rounded to hundredths of a degree."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Place:
    """A city. `warned` says whether weather alerts of the demonstration may be near it."""

    name: str
    country: str
    latitude: float
    longitude: float
    warned: bool


_UNITED_STATES = """
Anchorage 61.22 -149.90; Fairbanks 64.84 -147.72; Juneau 58.30 -134.42; Seattle 47.61 -122.33; Spokane 47.66 -117.43
Portland 45.52 -122.68; Eugene 44.05 -123.09; Boise 43.62 -116.21; Eureka 40.80 -124.16; Sacramento 38.58 -121.49
San Francisco 37.77 -122.42; Fresno 36.74 -119.79; Los Angeles 34.05 -118.24; San Diego 32.72 -117.16
Ridgecrest 35.62 -117.67; Las Vegas 36.17 -115.14; Reno 39.53 -119.81; Phoenix 33.45 -112.07; Tucson 32.22 -110.93
Salt Lake City 40.76 -111.89; Denver 39.74 -104.99; Albuquerque 35.08 -106.65; El Paso 31.76 -106.49
Billings 45.78 -108.50; Bismarck 46.81 -100.78; Rapid City 44.08 -103.23; Omaha 41.26 -95.94; Wichita 37.69 -97.34
Oklahoma City 35.47 -97.52; Dallas 32.78 -96.80; Austin 30.27 -97.74; San Antonio 29.42 -98.49; Houston 29.76 -95.37
Little Rock 34.75 -92.29; New Orleans 29.95 -90.07; Memphis 35.15 -90.05; St. Louis 38.63 -90.20
Des Moines 41.59 -93.62; Minneapolis 44.98 -93.27; Duluth 46.79 -92.10; Milwaukee 43.04 -87.91; Chicago 41.88 -87.63
Indianapolis 39.77 -86.16; Nashville 36.16 -86.78; Birmingham 33.52 -86.80; Mobile 30.69 -88.04; Atlanta 33.75 -84.39
Tallahassee 30.44 -84.28; Tampa 27.95 -82.46; Miami 25.76 -80.19; Jacksonville 30.33 -81.66; Charleston 32.78 -79.93
Charlotte 35.23 -80.84; Richmond 37.54 -77.44; Columbus 39.96 -83.00; Detroit 42.33 -83.05; Cleveland 41.50 -81.69
Pittsburgh 40.44 -80.00; Buffalo 42.89 -78.88; Washington 38.91 -77.04; Philadelphia 39.95 -75.17
New York 40.71 -74.01; Boston 42.36 -71.06; Burlington 44.48 -73.21; Portland (Maine) 43.66 -70.26
Honolulu 21.31 -157.86; Hilo 19.71 -155.09; San Juan 18.47 -66.11
"""
_ELSEWHERE = """
Tokyo, Japan 35.68 139.69; Sendai, Japan 38.27 140.87; Sapporo, Japan 43.06 141.35; Osaka, Japan 34.69 135.50
Naha, Japan 26.21 127.68; Petropavlovsk, Russia 53.02 158.65; Yuzhno-Sakhalinsk, Russia 46.96 142.73
Taipei, Taiwan 25.03 121.57; Hualien, Taiwan 23.99 121.60; Manila, Philippines 14.60 120.98
Davao, Philippines 7.19 125.46; Manado, Indonesia 1.47 124.84; Jakarta, Indonesia -6.21 106.85
Padang, Indonesia -0.95 100.35; Banda Aceh, Indonesia 5.55 95.32; Denpasar, Indonesia -8.65 115.22
Ambon, Indonesia -3.70 128.18; Kupang, Indonesia -10.18 123.61; Port Moresby, Papua New Guinea -9.44 147.18
Lae, Papua New Guinea -6.72 147.00; Rabaul, Papua New Guinea -4.20 152.17; Honiara, Solomon Islands -9.43 159.95
Port Vila, Vanuatu -17.74 168.32; Suva, Fiji -18.12 178.45; Nukualofa, Tonga -21.14 -175.20
Apia, Samoa -13.83 -171.77; Wellington, New Zealand -41.29 174.78; Christchurch, New Zealand -43.53 172.64
Gisborne, New Zealand -38.66 178.02; Kathmandu, Nepal 27.72 85.32; Kabul, Afghanistan 34.56 69.21
Islamabad, Pakistan 33.68 73.05; Dushanbe, Tajikistan 38.56 68.77; Kashgar, China 39.47 75.99
Chengdu, China 30.57 104.07; Tehran, Iran 35.69 51.39; Kerman, Iran 30.28 57.08; Bandar Abbas, Iran 27.18 56.27
Istanbul, Türkiye 41.01 28.98; Izmir, Türkiye 38.42 27.14; Malatya, Türkiye 38.35 38.31; Athens, Greece 37.98 23.73
Heraklion, Greece 35.34 25.13; Naples, Italy 40.85 14.27; L'Aquila, Italy 42.35 13.40; Catania, Italy 37.50 15.09
Reykjavik, Iceland 64.15 -21.94; Grindavik, Iceland 63.84 -22.43; Ponta Delgada, Portugal 37.74 -25.67
Mexico City, Mexico 19.43 -99.13; Oaxaca, Mexico 17.07 -96.72; Acapulco, Mexico 16.86 -99.88
Tapachula, Mexico 14.90 -92.26; Guatemala City, Guatemala 14.63 -90.51; San Salvador, El Salvador 13.69 -89.22
Managua, Nicaragua 12.11 -86.24; San José, Costa Rica 9.93 -84.08; Quito, Ecuador -0.18 -78.47
Guayaquil, Ecuador -2.19 -79.89; Lima, Peru -12.05 -77.04; Arequipa, Peru -16.41 -71.54; Iquique, Chile -20.21 -70.15
Antofagasta, Chile -23.65 -70.40; Coquimbo, Chile -29.95 -71.34; Santiago, Chile -33.45 -70.67
Concepción, Chile -36.83 -73.05; San Juan, Argentina -31.54 -68.54; Port-au-Prince, Haiti 18.59 -72.31
Kingston, Jamaica 17.97 -76.79
"""


def _read(text: str, *, warned: bool) -> list[Place]:
    found = []
    for entry in text.replace("\n", ";").split(";"):
        if entry.strip():
            name, latitude, longitude = entry.strip().rsplit(" ", 2)
            city, _, country = name.partition(", ")
            found.append(Place(city, country or "United States", float(latitude), float(longitude), warned))
    return found


PLACES: tuple[Place, ...] = (*_read(_UNITED_STATES, warned=True), *_read(_ELSEWHERE, warned=False))
