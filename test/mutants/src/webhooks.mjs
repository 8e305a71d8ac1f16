// Mutants of src/webhooks.
export const file = "src/webhooks/address-guard.ts";
export const killedBy = "test/webhooks/ssrf.test.ts";

export const mutants = [
  {
    name: "a delivery is recorded as successful before the response arrives",
    killedBy: "test/webhooks/webhooks.test.ts",
    only: "is listed with",
    file: "src/webhooks/sender.ts",
    old: "result = await poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });",
    new: `void poster.post({ url, body, headers: { ...headers, ...signed }, timeoutMs, onWritten });
      result = { status: 204 };`,
  },
  {
    name: "a redirect counts as a success",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "redirects",
    file: "src/webhooks/request.ts",
    old: "if (status < 200 || status > 299)",
    new: "if (status < 200 || status > 399)",
  },
  {
    name: "a response body is read without a limit",
    killedBy: "test/webhooks/receivers.test.ts",
    only: "cut off",
    file: "src/webhooks/request.ts",
    old: "if (size > MAX_RESPONSE) end(false);",
    new: "",
  },
  {
    name: "only the first address of a host name is checked",
    old: "for (const { address } of answers) checkAddress(url, address);",
    new: "checkAddress(url, answers[0]!.address);",
  },
  {
    name: "a host name is resolved again when connecting",
    old: "if (options.all) callback(null, [...answers] as never);",
    new: "if (options.all) void resolve(host).then((again) => callback(null, [...again] as never));",
  },
  {
    name: "the address of the connected socket is not checked",
    old: `      if (!address) throw new BlockedAddress();
      checkAddress(url, address);
`,
    new: "",
  },
  {
    name: "IPv6 addresses are checked against a denylist",
    old: "return !within(ip, global6) || internal6.some((range) => within(ip, range));",
    new: "return internal6.some((range) => within(ip, range));",
  },
  {
    name: "internal host names are checked by their address only",
    edits: [
      {
        old: "if (isInternal(ip) || isInternalName(hostOf(url)) || !defaultPorts.has(port))",
        new: "if (isInternal(ip) || !defaultPorts.has(port))",
      },
      {
        old: `      else if (isInternalName(host) && allowed.length === 0) throw new BlockedAddress();
`,
        new: "",
      },
    ],
  },
  {
    name: "plain HTTP is allowed",
    old: 'if (url.protocol === "http:" && !allowHttp) throw',
    new: "if (false) throw",
  },
  {
    name: "a webhook with a future timestamp is accepted",
    killedBy: "test/webhooks/signature.test.ts",
    file: "src/webhooks/signature.ts",
    old: "Math.abs(skewMs) > toleranceMs",
    new: "-skewMs > toleranceMs",
  },
  {
    name: "a webhook id may contain a dot",
    killedBy: "test/webhooks/signature.test.ts",
    file: "src/webhooks/signature.ts",
    old: "/^[^\\s.]{1,200}$/",
    new: "/^\\S{1,200}$/",
  },
  {
    name: "the timestamp is not part of the signature",
    killedBy: "test/webhooks/signature.test.ts",
    file: "src/webhooks/signature.ts",
    old: "signedContent(id, String(Math.floor(timestamp)), body)",
    new: 'signedContent(id, "0", body)',
  },
  {
    name: "a webhook id is remembered before its signature is verified",
    killedBy: "test/webhooks/signature.test.ts",
    file: "src/webhooks/signature.ts",
    old: `  const content = signedContent(id, timestamp, body);
  if (!(await isSigned`,
    new: `  const content = signedContent(id, timestamp, body);
  await options.seen?.add(id);
  if (!(await isSigned`,
  },
];
