// What the harbour master has written down in settings.yaml.
const fs = require("fs");
const yaml = require("js-yaml");

exports.load = () => (fs.existsSync("settings.yaml") ? yaml.load(fs.readFileSync("settings.yaml", "utf8")) : {});
