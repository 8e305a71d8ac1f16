// npm run build: the compiled library in dist/. The SQL is read from sql/ beside it, so nothing is copied.
import { ensure } from "./ensure.mjs";

await ensure();
