// The custom element as one file, served at /embed.js for pages without a bundler.
import "stillwake/element";
