/** The URL of a documentation page, for messages: their readers may not have the package's files at hand. */
export const pageOf = (name: string): string => `https://github.com/waybill-js/waybill/blob/main/docs/${name}`;
