// The names of repositories. No Node: contracts and pages import it as well.

/** "acme/site"; GitLab has groups in groups. What git is given is rebuilt from these parts, so nothing else may be in them. */
export const REPOSITORY = /^[A-Za-z0-9_][\w.-]*(?:\/[A-Za-z0-9_][\w.-]*){1,9}$/;
