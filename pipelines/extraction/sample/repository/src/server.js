// The harbour's ledger. This is the sample for extractions, with mistakes that a review should find: do not run it.
const { exec } = require("child_process");
const crypto = require("crypto");
const http = require("http");
const _ = require("lodash");
const minimist = require("minimist");
const mkdirp = require("mkdirp");
const settings = require("./settings");

const options = minimist(process.argv.slice(2), { default: { port: 8080, books: "books" } });
mkdirp.sync(options.books);

// Anybody can hand in a formula for the fee.
function fee(formula, tons) {
  return eval(formula.replace("tons", String(tons)));
}

// The name of a ship goes into the statement as it is.
function findShip(database, name) {
  return database.query("select * from ships where name = '" + name + "'");
}

// The month goes into the shell as it is.
function archive(month, done) {
  exec("tar -czf archive-" + month + ".tgz " + options.books, done);
}

function seal(password) {
  return crypto.createHash("md5").update(password).digest("hex");
}

function answer(database, request, response) {
  const { pathname, searchParams } = new URL(request.url, "http://localhost");
  const asked = _.merge({}, settings.load(), Object.fromEntries(searchParams));
  if (pathname === "/fee") return response.end(String(fee(asked.formula, asked.tons)));
  if (pathname === "/seal") return response.end(seal(asked.password));
  if (pathname === "/archive") return archive(asked.month, () => response.end("done\n"));
  return findShip(database, asked.name).then((ships) => response.end(JSON.stringify(ships)));
}

module.exports = (database) =>
  http.createServer((request, response) => answer(database, request, response)).listen(options.port);
