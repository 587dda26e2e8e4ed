/** An event that was alone in the window of so many relays in a row that died is parked, and is not even read again. */
export const deathsToPark = 3;
