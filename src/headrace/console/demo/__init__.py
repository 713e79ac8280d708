"""The demonstration: a made-up day of earthquakes and weather alerts, as public feeds would have told it, and queries over it."""
