"""SSIJ: online and join phases, a page cache, and an optimal read plan. [SSIJ]"""
