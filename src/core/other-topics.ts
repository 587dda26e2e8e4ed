/**
 * The record of all topics in trouble that have none of their own. No topic has a blank in its name, so a record of this name is no topic.
 */
export const otherTopics = "(other topics)";
