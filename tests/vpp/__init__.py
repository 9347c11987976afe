"""mmb as a plugin of a real VPP, beside `mmb replay`."""
