// A figure of a stage.

/** Without a value the text stands alone. */
export function Figure({ value, text }: { value?: string; text: string }) {
  return (
    <p className="figure">
      {value !== undefined && <b className="number">{value} </b>}
      <span className="soft">{text}</span>
    </p>
  );
}
