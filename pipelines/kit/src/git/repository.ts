// Repository names. Imports nothing, because contracts in browser bundles import it.

/** "acme/site", "acme/.github", nested GitLab groups. URLs are built from these parts, so no other characters are allowed. */
export const REPOSITORY = /^[A-Za-z0-9_][\w.-]*(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9_.][\w.-]*){1,9}$/;
