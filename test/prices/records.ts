/** How many records topics in trouble have at most: 32 of a name, and one for all others in each of the 64 lanes. */
export const topicRecords = 32 + 64;
