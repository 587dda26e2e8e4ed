/** The fingerprints of each store's versions, as they were released: a released text never changes, and a change is a new version. */
export const released: Readonly<Record<string, readonly string[]>> = {
  postgres: [],
  sqlite: [],
  embedded: [],
  mysql: [],
};

/** Every version whose text is not the one that was released. */
export const changed = (known: Readonly<Record<string, readonly string[]>>, was = released): readonly string[] =>
  Object.entries(was).flatMap(([store, texts]) =>
    texts.flatMap((text, at) => (known[store]?.[at] === text ? [] : [`${store}: the text of version ${at + 1} is not the released one`])),
  );
