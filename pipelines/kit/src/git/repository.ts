// The names of repositories. No Node: contracts and pages import it as well.

/** "acme/site", "acme/.github"; GitLab has groups in groups. What git is given is rebuilt from these parts, so nothing else may be in them. */
export const REPOSITORY = /^[A-Za-z0-9_][\w.-]*(?:\/(?!\.{1,2}(?:\/|$))[A-Za-z0-9_.][\w.-]*){1,9}$/;
