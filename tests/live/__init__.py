"""End-to-end tests of `mmb run`: real programs and crafted frames through live ports between network namespaces."""
