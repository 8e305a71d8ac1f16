// The custom element as one file, served at /embed.js for pages that have no bundler.
import "stillwake/element";
