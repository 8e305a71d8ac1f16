/** A promise that the test resolves. */
export function deferred<Value = void>(): { promise: Promise<Value>; resolve: (value: Value) => void } {
  let resolve: (value: Value) => void = () => {};
  const promise = new Promise<Value>((made) => (resolve = made));
  return { promise, resolve };
}
