// The machines of a pool as a row of places, with what they are and what each means: nobody has to tell shapes apart.
import type { nouns } from "../../api/nouns.ts";
import { placesOf, placeWords, tally } from "../../parts/machine-words.ts";
import { count, inert, several, span } from "../../parts/words.ts";

/** More say nothing that the words beside them do not. */
const MAX_SHOWN = 40;

export function Places({
  of,
  machines,
}: {
  of: NonNullable<nouns.Pool["machines"]>;
  machines: readonly nouns.Machine[];
}) {
  const places = placesOf(of, machines);
  const { provider, size, region, slots, idleExitMs } = of;
  const kind = [provider, size, region].filter((one) => one !== null).map(inert);
  return (
    <div className="places">
      <div className="places-row" aria-hidden="true">
        {places.slice(0, MAX_SHOWN).map((place, index) => (
          <span key={index} className="place" data-place={place} title={placeWords[place]} />
        ))}
        {places.length > MAX_SHOWN && <span className="soft small">+{count(places.length - MAX_SHOWN)}</span>}
      </div>
      <p className="places-words small">
        {tally(places).map(([place, many]) => (
          <span key={place}>
            <span className="place" data-place={place} aria-hidden="true" /> {count(many)} {placeWords[place]}
          </span>
        ))}
      </p>
      <p className="places-kind soft small foreign">
        {kind.join(" · ")} · {several(slots, "job")} at once on each · goes after {span(idleExitMs)} without a job
      </p>
    </div>
  );
}
