"""HYBRIDJOIN and X-HYBRIDJOIN: index look-ups for the oldest waiting tuple, shared by all others. [XHJ]"""
